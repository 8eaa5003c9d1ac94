package frazil;

import software.amazon.awssdk.core.interceptor.Context;
import software.amazon.awssdk.core.interceptor.ExecutionAttributes;
import software.amazon.awssdk.core.interceptor.ExecutionInterceptor;
import software.amazon.awssdk.core.interceptor.SdkExecutionAttribute;

/**
 * Counts what Amazon's library sends to S3 and to Glue, each try by itself. The library finds it by a file in this jar, so that
 * every client has it, however it is made.
 */
public final class AwsRequests implements ExecutionInterceptor {
  /** Made by Amazon's library. */
  public AwsRequests() {}

  @Override
  public void beforeTransmission(Context.BeforeTransmission context, ExecutionAttributes attributes) {
    String operation = attributes.getAttribute(SdkExecutionAttribute.OPERATION_NAME);
    switch (attributes.getAttribute(SdkExecutionAttribute.SERVICE_NAME)) {
      case "S3" -> Requests.count("store", onStore(operation));
      case "Glue" -> Requests.count("catalog", onCatalog(operation));
      default -> {}
    }
  }

  private static String onStore(String operation) {
    return switch (operation) {
      case "PutObject", "CopyObject" -> "put";
      case "GetObject" -> "get";
      case "HeadObject", "HeadBucket" -> "head";
      case "ListObjects", "ListObjectsV2", "ListObjectVersions" -> "list";
      case "DeleteObject", "DeleteObjects" -> "delete";
      case "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload" -> "multipart";
      default -> "other";
    };
  }

  private static String onCatalog(String operation) {
    return switch (operation) {
      case "GetTable" -> "load";
      case "UpdateTable" -> "commit";
      case "CreateTable" -> "create";
      case "DeleteTable" -> "drop";
      case "GetTables" -> "list";
      default -> operation.contains("Database") ? "namespace" : "other";
    };
  }
}
